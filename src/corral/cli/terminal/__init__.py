"""What a terminal shows and takes: tables, times, progress, questions, waits, the input line of a console."""
