"""The live campaign: workers answer in a browser, the owner watches, tools plug in over HTTP."""
