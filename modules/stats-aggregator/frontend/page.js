// Draws the totals. The dashboard gives its pages a bridge with `fetch`; without one there is nothing to show.
const bridge = window.corral;
const rows = bridge ? await (await bridge.fetch("/groups")).json() : [];
document.querySelector("#groups").replaceChildren(
  ...rows.map((row) => {
    const line = document.createElement("tr");
    const cells = [row.group, row.starts, row.stops, row.crashes, (row.run_seconds / 3600).toFixed(1)];
    for (const text of cells) {
      const cell = document.createElement("td");
      cell.textContent = text;
      line.append(cell);
    }
    return line;
  }),
);
