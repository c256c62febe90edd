"""Live sessions of daemons: handshake, reader, writer, heartbeat, enrolment."""
