"""How the processes of a run are joined: controller and workers under xdist, else one process."""
