"""The wire contract of rackpower: one package per version, nothing but generated stubs below."""
