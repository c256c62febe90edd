"""What the processes of instances use, read from /proc."""
