"""Control groups: one interface (`port`) and four adapters: systemd, v2, v1 and none."""
