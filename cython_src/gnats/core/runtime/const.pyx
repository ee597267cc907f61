"""Default options; see const.pxd."""
