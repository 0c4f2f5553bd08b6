"""Old import paths (`determined.common.check`, `determined.common.storage`) that users rely on."""
