"""Output and input of a terminal: tables, times, progress, questions, waits, the input line of a console."""
