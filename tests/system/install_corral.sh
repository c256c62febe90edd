# Sourced on a machine of tests: `/opt/corral` as `python3 -m venv` and `pip install .` would make it, at a path that
# every user can read, out of the environment of the tests.
base=$(.venv/bin/python -c 'import sys; print(sys.base_prefix)')
mkdir -p /opt/python /opt/corral/bin /opt/corral/lib /opt/corral/src
mount --bind "$base" /opt/python
printf 'home = /opt/python/bin\n' > /opt/corral/pyvenv.cfg
ln -s /opt/python/bin/python3 /opt/corral/bin/python3
# Mounted, not linked: the controller's unit hides /tmp and /home, where the project may lie.
mount --bind "$(realpath .venv/lib)" /opt/corral/lib
mount --bind "$(realpath src)" /opt/corral/src
echo /opt/corral/src > /opt/corral/corral.pth
for editable in /opt/corral/lib/python3*/site-packages/*corral*.pth; do
  mount --bind /opt/corral/corral.pth "$editable"
done
printf '#!/opt/corral/bin/python3\nfrom corral.cli.__main__ import main\nmain()\n' > /opt/corral/bin/corral
chmod 755 /opt/corral/bin/corral
echo /opt/python/lib > /etc/ld.so.conf.d/00-python.conf
ldconfig
