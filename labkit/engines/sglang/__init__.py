"""SGLang, driven from outside: nothing here imports it, except the plugin, which SGLang itself loads."""
