"""What the server and its clients say to each other: values as JSON, and errors by name. Without compiled code."""
