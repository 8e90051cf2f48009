"""Messages between the server and its clients: values as JSON, and errors by name. Without compiled code."""
