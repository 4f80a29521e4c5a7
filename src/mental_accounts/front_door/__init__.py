"""What Python users and the command line call: train, resume, evaluate, compare. Other packages do the work."""
