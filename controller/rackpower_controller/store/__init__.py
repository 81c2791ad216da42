"""Redis (or Valkey) behind one small Protocol: terms, recorded exposures, policy revisions, events.

What lives here: the store's addresses, scripts, client and the embedded server's life.
What must never: decisions. The store is history and election, never the truth about caps.
"""
