"""What this node keeps of templates, artifacts and first runs, and how it gets them."""
