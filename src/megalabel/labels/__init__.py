"""What is known of the label space."""
