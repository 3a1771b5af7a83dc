//! The consequence of each blocker, and how to remove it.

use stasis_config::BlockerKind;

/// The known consequence of each blocker, and the ways to remove it.
pub(super) const ALL: [(BlockerKind, &str, &str); 28] = [
    (
        BlockerKind::DriverVersion,
        "the driver has no calls for a checkpoint",
        "install driver 570 (CUDA 12.8) or newer",
    ),
    (
        BlockerKind::FailedState,
        "the driver has lost the GPU state of a process and cannot save it",
        "end the process and start it again",
    ),
    (
        BlockerKind::NcclP2p,
        "processes share GPU memory in a way that this driver saves and then cannot restore, so the \
         job would be lost",
        "start the container with the annotation io.stasis.nccl=checkpointable, or the job with \
         NCCL_P2P_DISABLE=1 NCCL_CUMEM_ENABLE=0 NCCL_CUMEM_HOST_ENABLE=0 NCCL_NVLS_ENABLE=0 in its \
         environment or the container's /etc/nccl.conf; the annotation, which keeps NVLink, is \
         enough only against NCCL's host memory and multicast",
    ),
    (
        BlockerKind::PeerAccess,
        "memory of 512 MiB or more that another GPU reaches by peer access (PyTorch enables it at the \
         first copy from one GPU to another) this driver saves and then cannot restore, so the job \
         would be lost",
        "have each process use one GPU (CUDA_VISIBLE_DEVICES), PyTorch allocate in small pieces (the \
         annotation io.stasis.peer-access=checkpointable, or \
         PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True), or the program call \
         cudaDeviceDisablePeerAccess before the checkpoint; where its memory alone is the evidence, \
         and no process has peer access, start the container with the annotation \
         io.stasis.peer-access=none",
    ),
    (
        BlockerKind::SharedGpu,
        "once restored, the driver no longer interrupts a kernel of a process, and ends the process after \
         4 s if another one waits for the GPU (Xid 109), as ranks do for each other",
        "give each rank a GPU alone: end or move the other program, or suspend it first (stasis \
         suspend) if it has no ranks itself",
    ),
    (
        BlockerKind::Mps,
        "the driver cannot save clients of MPS",
        "run the job without MPS: no CUDA_MPS_PIPE_DIRECTORY, no mount of the server's directory",
    ),
    (
        BlockerKind::Mig,
        "the driver cannot save processes on MIG slices",
        "give the container a whole GPU: nvidia-smi -i GPU -mig 0 on an idle GPU",
    ),
    (
        BlockerKind::ManagedMemory,
        "the driver cannot save managed memory",
        "have the program use cudaMalloc or pinned memory in place of cudaMallocManaged",
    ),
    (
        BlockerKind::LostGpu,
        "NVML cannot report on a GPU that a process uses, so its contents cannot be relied on",
        "see dmesg (Xid) and nvidia-smi; if the GPU is gone, end the process, restore an earlier \
         image on another GPU, and reset this one or restart the machine",
    ),
    (
        BlockerKind::Persistence,
        "without persistence mode the driver frees a GPU with its last user, and then restores \
         nothing to it, also not after a checkpoint that fails or leaves the container running",
        "switch persistence mode on (nvidia-smi -pm 1, or nvidia-persistenced)",
    ),
    (
        BlockerKind::UnknownGpus,
        "another program has moved the GPU state of a process to host memory, and the driver does \
         not say what it held on which GPUs: a restore without room there loses it",
        "restore it first: cuda-checkpoint --toggle --pid PID",
    ),
    (
        BlockerKind::NvidiaDevice,
        "CRIU cannot dump an NVIDIA device of a process without CUDA state",
        "end the process (nvidia-smi, DCGM, a monitor) for the time of the checkpoint, or run it in \
         a container of its own",
    ),
    (
        BlockerKind::Gdrdrv,
        "CRIU cannot dump GDRCopy's device",
        "keep /dev/gdrdrv out of the container, or switch GDRCopy off (UCX: UCX_TLS=^gdr_copy)",
    ),
    (
        BlockerKind::Rdma,
        "CRIU cannot dump RDMA devices",
        "keep /dev/infiniband out of the container, or have NCCL use sockets (NCCL_IB_DISABLE=1)",
    ),
    (
        BlockerKind::IoUring,
        "CRIU cannot dump io_uring rings",
        // libuv makes one ring whatever UV_USE_IO_URING is (seen with PyTorch 2.11).
        "start the program without it (PyTorch's TCPStore: USE_LIBUV=0; others that use libuv: \
         UV_USE_IO_URING=0), or switch io_uring off before it starts (sysctl \
         kernel.io_uring_disabled=2)",
    ),
    (
        BlockerKind::TcpConnection,
        "CRIU dumps a TCP connection only if it is asked to, and it lasts (2 s)",
        "close it, or ask: --tcp-established of podman's and stasis's checkpoint (and restore), or a \
         line \"tcp-established\" in /etc/criu/runc.conf (crun.conf), which holds for all engines; \
         for what is not accepted yet, --tcp-skip-in-flight, or a line \"tcp-skip-in-flight\"",
    ),
    (
        BlockerKind::UnixConnection,
        "CRIU cannot dump one end of a unix connection without the other, and it lasts (2 s)",
        "have the program close it before the checkpoint, keep the host's socket out of the \
         container, or run the other program in it; for datagrams, such as to /dev/log, write a line \
         \"ext-unix-sk\" into /etc/criu/runc.conf (crun.conf)",
    ),
    (
        BlockerKind::DeletedFile,
        "CRIU puts a file that was removed into the image only up to its ghost-limit, and looks for \
         no other name of it",
        "have the program close it or keep its name, or write into /etc/criu/runc.conf (crun.conf) a \
         line \"ghost-limit 512M\", or, for a file with another name, \"link-remap\"",
    ),
    (
        BlockerKind::Watch,
        "CRIU finds what is watched by its file handle, which an overlay has not, or in /etc, \
         /var/log and /var/spool",
        "have the program close it before the checkpoint, watch a directory of a volume, or name \
         CRIU the directory: a line \"irmap-scan-path DIRECTORY\" in /etc/criu/runc.conf (crun.conf)",
    ),
    (
        BlockerKind::MessageQueue,
        "CRIU cannot dump POSIX message queues",
        "have the program close and remove it (mq_close, mq_unlink) before the checkpoint, or use a \
         pipe or a socket",
    ),
    (
        BlockerKind::NestedNamespace,
        "CRIU dumps one namespace of this kind in a container",
        "run the program without a sandbox of its own (unshare, bwrap, Chromium's --no-sandbox), or \
         end it for the time of the checkpoint",
    ),
    (
        BlockerKind::KernelObject,
        "CRIU cannot dump such an object of the kernel's",
        "have the program close it before the checkpoint (userfaultfd, perf, KVM), load programs and \
         maps of BPF from outside of the container, or use memfd_create in place of memfd_secret",
    ),
    (
        BlockerKind::SameMemory,
        "CRIU cannot dump processes that have one memory (CLONE_VM, vfork)",
        "try again once it has exec'd or ended; a program that keeps such a process has to be \
         changed: threads, or fork in place of vfork",
    ),
    (
        BlockerKind::MainThreadEnded,
        "CRIU takes a process whose first thread has ended for one that is over, and dumps nothing \
         of it",
        "have its main function wait for its threads (pthread_join) in place of ending by \
         pthread_exit",
    ),
    (
        BlockerKind::JoinedNamespace,
        "CRIU makes a container's user namespace anew at a restore, and its root may not join the \
         namespaces that the container is given by a path, such as its pod's",
        "run it without a user namespace (Kubernetes: hostUsers: true), or with a network and pids \
         of its own",
    ),
    (
        BlockerKind::ExecSession,
        "a process that was started by exec is in no image, and ends when a checkpoint ends the \
         container",
        "end it first, start it from the container's own program, or have the checkpoint leave the \
         container running",
    ),
    (
        BlockerKind::OtherRuntime,
        "its engine has another runtime than stasis checkpoint it, with which CRIU fails at the \
         driver's devices, or leaves out what is on the GPU",
        "make the container again with stasis as its runtime (podman --runtime stasis run, docker \
         run --runtime stasis, ctr run --runtime io.containerd.stasis.v2, a pod's RuntimeClass; \
         `stasis setup ENGINE` tells the engine of it), or checkpoint it without its engine: stasis \
         checkpoint --group NAME --into DIR",
    ),
    (
        BlockerKind::DockerExperimental,
        "Docker has checkpoints only if its settings say that it is \"experimental\"",
        "`stasis setup docker` writes that; then restart Docker, which ends its containers unless \
         it has \"live-restore\"",
    ),
];
