"""The command line: `keras-luong`, one file a command."""
