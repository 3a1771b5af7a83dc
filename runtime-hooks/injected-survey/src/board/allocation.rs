//! An allocation of GPU memory, as the thread reports it.

/// An allocation of GPU memory.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allocation {
    /// First address.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u64,
    /// A [`Kind`].
    pub kind: u64,
    /// `CUmemLocationType` of virtual memory management: 1 is a device, 3 a NUMA node of the host.
    pub location_type: u64,
    /// Number of the device or NUMA node.
    pub location: u64,
    /// The kinds of handles (`CUmemAllocationHandleType`) that can be made of it: none if it was
    /// imported, or was allocated without any.
    pub handle_types: u64,
    /// By bits: the devices that may use it.
    pub access: u64,
    /// The value of its handle, if it has one.
    pub handle: u64,
}

/// The kind of an allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u64)]
pub enum Kind {
    /// Memory of cuMemAlloc.
    Ordinary = 1,
    /// Virtual memory (cuMemCreate), or imported as such.
    Virtual = 2,
    /// Memory of a pool.
    Pool = 3,
    /// Opened by cuIpcOpenMemHandle.
    LegacyImport = 4,
    /// Managed memory.
    Managed = 5,
    /// None of these: libcuda reports nothing of it.
    Unknown = 6,
}
