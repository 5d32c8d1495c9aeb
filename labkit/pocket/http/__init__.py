"""The pocket engine's HTTP face. A request's way: body, protocol (checked), desk (its turn), run (tokens), answer."""
