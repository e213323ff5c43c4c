//! What debugging information says about an address.
