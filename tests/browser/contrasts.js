// The texts of a page that differ too little from what is behind them: below 4.5 to 1, as WCAG 2.1 counts it.
() => {
  const numbers = (colour) => colour.match(/[\d.]+/g).map(Number);
  const light = ([red, green, blue]) => {
    const [r, g, b] = [red, green, blue].map((each) => each / 255).map((each) => (each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = numbers(getComputedStyle(each).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const contrast = (element) => {
    const [high, low] = [light(numbers(getComputedStyle(element).color)), light(behind(element))].sort((a, b) => b - a);
    return (high + 0.05) / (low + 0.05);
  };
  const found = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (walker.currentNode.data.trim() && element.checkVisibility() && contrast(element) < 4.5) {
      found.add(`${element.tagName}.${element.className} ${contrast(element).toFixed(2)}: ${walker.currentNode.data.slice(0, 40)}`);
    }
  }
  return [...found];
}
