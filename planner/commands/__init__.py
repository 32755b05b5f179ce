"""The commands of the command line, a module for each subject: what they take, what they call, what they print."""
