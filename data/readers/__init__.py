"""One streaming reader a format: a file's bytes in, found and refused records out, in bounded memory."""
