export HOOK_VAR=hooked
