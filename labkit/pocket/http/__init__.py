"""The pocket engine's HTTP server. A request's way: body, protocol (checks), queue (its turn), run (tokens), answer."""
