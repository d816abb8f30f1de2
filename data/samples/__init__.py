"""Sample inputs: real mails to try the pipeline on, and a made-up corpus whose truth is known."""
