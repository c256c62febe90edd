"""Planning: what a fleet is to do next, and on which nodes; without input, output, clock or chance."""
