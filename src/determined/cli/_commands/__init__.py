"""What commands are made of: groups, options, errors, the platform behind them."""
