"""The console: pages on which signed-in sellers manage their listings, API keys, plan and account."""
