"""Every warning of the check of the host, with what it means and what on-call does about it."""

from checks.reason_rows import warning

PERSISTENCE_OFF = warning(
    "PersistenceModeOff",
    "A GPU's persistence mode is off",
    "The driver then brings the GPU down whenever nobody uses it: each job starts seconds later, and settings are "
    "lost. Run nvidia-persistenced (GPU Operator does), or `nvidia-smi -pm 1`.",
)
ACS_REDIRECTS = warning(
    "AcsRedirectsPeerTraffic",
    "PCIe switches redirect what goes between GPU and HCA up to the processor (ACS)",
    "GPUDirect RDMA is then several times slower. The evidence names the bridges. On bare metal switch IOMMU groups "
    "off in the firmware (VT-d, AMD IOMMU), or clear the bits at boot: `setpci -s BRIDGE ECAP_ACS+6.w=0000`.",
)
PEERMEM_MISSING = warning(
    "PeermemNotLoaded",
    "The kernel module nvidia_peermem is not loaded, and peermem_expected says that it should be",
    "GPUDirect RDMA by peer memory does not work without it: `modprobe nvidia_peermem` (GPU Operator: "
    "driver.rdma.enabled). Where DMA-BUF is used it is not needed; then leave peermem_expected off.",
)
PROCESSES_STUCK = warning(
    "ProcessesStuck",
    "Many processes stay in uninterruptible sleep",
    "They wait in the kernel for a disk, a file server or a driver, and cannot be killed. `ps -eo "
    "pid,stat,wchan:32,comm | grep ' D'`, `cat /proc/PID/stack`. See SharedStorageFault, LocalStorageFault and "
    "GpuDriverFault.",
)
MEMORY_CORRECTED = warning(
    "HostMemoryCorrected",
    "The memory controllers of the host correct many errors",
    "A module is going bad: `grep . /sys/devices/system/edac/mc/mc*/*/dimm_label "
    "/sys/devices/system/edac/mc/mc*/*/*ce_count`, the BMC's event log. Have the module replaced at the next "
    "maintenance.",
)
MEMORY_UNCORRECTED = warning(
    "HostMemoryUncorrected",
    "The memory of the host had an error that could not be corrected",
    "Whoever used that page was killed or holds wrong data. The BMC's event log names the module: have it replaced.",
)
HARDWARE_ERROR = warning(
    "HardwareErrorLogged",
    "The kernel logged an error of the hardware (machine check, or the firmware's own report)",
    "The evidence holds the newest line. `dmesg | grep 'Hardware Error'`, `ras-mc-ctl --errors`, the BMC's event log.",
)
KERNEL_LOCKUP = warning(
    "KernelLockup",
    "The kernel found a processor stuck in itself (soft or hard lockup, RCU stall)",
    "The evidence holds the newest line; the stack that follows it in `dmesg` names the culprit, often a driver. One "
    "that comes again wants a reboot.",
)
CLOCK_UNSYNCHRONISED = warning(
    "ClockNotSynchronised",
    "Nobody keeps this machine's clock",
    "Logs of several nodes cannot be compared, certificates and tokens fail early or late. `chronyc tracking`, "
    "`timedatectl`.",
)
FABRIC_MANAGER_DOWN = warning(
    "FabricManagerDown",
    "There are NVSwitches, and nv-fabricmanager does not run",
    "Without it GPUs start no CUDA work after a reset or reboot (see FabricNotReady). `systemctl status "
    "nvidia-fabricmanager`; under GPU Operator it runs in the driver's pod. Its version must be the driver's.",
)
RUNTIME_DOWN = warning(
    "ContainerRuntimeDown",
    "The container runtime takes no connection",
    "No pod starts or ends; kubelet turns the node NotReady. `systemctl status containerd` (or crio), its journal, "
    "its disk.",
)
KUBELET_DOWN = warning(
    "KubeletDown",
    "Kubelet's socket for pod resources takes no connection",
    "The node turns NotReady, and nobody can say which GPUs are in use. `systemctl status kubelet`, `journalctl -u "
    "kubelet`.",
)
FROM_KERNEL = (HARDWARE_ERROR, KERNEL_LOCKUP)
REASONS = (
    PERSISTENCE_OFF,
    ACS_REDIRECTS,
    PEERMEM_MISSING,
    PROCESSES_STUCK,
    MEMORY_CORRECTED,
    MEMORY_UNCORRECTED,
    *FROM_KERNEL,
    CLOCK_UNSYNCHRONISED,
    FABRIC_MANAGER_DOWN,
    RUNTIME_DOWN,
    KUBELET_DOWN,
)
