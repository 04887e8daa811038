# SPDX-License-Identifier: BSD-3-Clause
"""The machine that is measured: processors, GPUs, links, versions."""
import datetime
import json
import os
import platform
import re
import shutil
import socket

from .processes import output_of

BUSY_PERCENT = 10


def cpu_model():
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def memory_bytes():
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def driver_version():
    """Of NVIDIA's kernel module; None without one."""
    try:
        with open("/proc/driver/nvidia/version", encoding="ascii", errors="replace") as file:
            found = re.search(r"Module.*?\s(\d+(\.\d+)+)\s", file.read())
            return found and found[1]
    except OSError:
        return None


def gpushm_info(side):
    """What gpushm-info beside gpushm-run finds; {} where it cannot be asked."""
    program = side.command[0]
    path = shutil.which(program) or program
    said = output_of(["env", *(f"{k}={v}" for k, v in side.environment.items()),
                      os.path.join(os.path.dirname(path), "gpushm-info"), "--json"])
    try:
        return json.loads(said) if said else {}
    except ValueError:
        return {}


def commit():
    """Of the tree that this runs from; None where it is installed."""
    here = os.path.dirname(os.path.abspath(__file__))
    if not os.path.exists(os.path.join(here, "..", "..", "..", "configure.ac")):
        return None
    said = output_of(["git", "-C", here, "describe", "--always", "--dirty", "--tags"])
    return said.strip() if said else None


def drawing():
    """SVG of hwloc's lstopo, or None."""
    for program in ("lstopo", "lstopo-no-graphics"):
        said = output_of([program, "--of", "nativesvg", "--no-legend", "-"])
        if said and "<svg" in said:
            # Its viewBox has units, which browsers refuse there.
            said = said[said.index("<svg"):].replace("'", '"')
            return re.sub(r'viewBox="[^"]*"', lambda found: found[0].replace("px", ""), said)
    return None


def links():
    """The table of nvidia-smi, or None."""
    said = output_of(["nvidia-smi", "topo", "-m"])
    return said and re.sub(r"\x1b\[[0-9;]*m", "", said).rstrip()


def compute_capability():
    said = output_of(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"])
    return said.split()[0] if said and said.split() else None


def variables():
    """Of the environment, which reach everything that is measured."""
    return {name: value for name, value in sorted(os.environ.items())
            if name.startswith(("UCX_", "CUDA_", "OMPI_MCA_", "NCCL_")) or name == "LD_LIBRARY_PATH"}


def describe(side, driver):
    """`driver`: what raw_copies says of the CUDA driver."""
    found = gpushm_info(side)
    mpi, ucx = found.get("open_mpi") or {}, found.get("ucx") or {}
    return {
        "host": socket.gethostname(), "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "cpu": cpu_model(), "cpus": len(os.sched_getaffinity(0)), "memory_bytes": memory_bytes(),
        "system": f"{platform.system()} {platform.release()}",
        "gpus": (found.get("cuda") or {}).get("gpus", []), "driver": driver_version(),
        "cuda_driver": driver.get("driver"), "simulated": bool(driver.get("simulated")),
        "compute_capability": compute_capability(), "devices": driver.get("devices", 0),
        "gpushm": (found.get("gpushm") or {}).get("version"), "commit": commit(),
        "ucx": ucx.get("version"), "mpi": mpi.get("version"),
        "drawing": drawing(), "links": links(), "variables": variables(),
    }


def same_machine(one, other):
    return all(one.get(name) == other.get(name) for name in ("host", "cpu", "devices", "simulated"))


def busy_gpus(devices, gpus):
    """Why the GPUs are not free, a line each. `gpus`: as gpushm-info names them, in CUDA's order, which need not be
    that of nvidia-smi. Without nvidia-smi nothing is known."""
    known = {gpus[device]["uuid"]: device for device in devices if device < len(gpus)}
    said = output_of(["nvidia-smi", "--query-gpu=index,uuid,utilization.gpu", "--format=csv,noheader,nounits"])
    programs = output_of(["nvidia-smi", "--query-compute-apps=gpu_uuid,pid,process_name", "--format=csv,noheader"])
    for line in (said or "").splitlines():
        index, uuid, percent = (word.strip() for word in line.split(",", 2))
        device = known.get(uuid) if known else int(index) if index in map(str, devices) else None
        if device is None:
            continue
        users = [one.split(",", 1)[1].strip() for one in (programs or "").splitlines() if one.startswith(uuid)]
        if users:
            yield f"GPU {device} is used by process {'; '.join(users)}"
        elif percent.isdigit() and int(percent) > BUSY_PERCENT:
            yield f"GPU {device} is busy ({percent} %)"
