"""From columns to matches: symbols, kernel, arena, enumeration, and the session around them."""
