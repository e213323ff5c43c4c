//! Changes of mappings, as effects of an event.
