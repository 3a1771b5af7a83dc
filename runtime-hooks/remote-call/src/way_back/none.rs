//! Where it is not known how to write a frame.

use std::io;

use nix::unistd::Pid;

use super::ChildFrame;
use crate::ffi::SignalMask;
use crate::registers::{Gate, Registers};
use crate::rseq::CriticalSection;

#[derive(Debug)]
pub(crate) enum WayBack {}

impl WayBack {
    pub(crate) fn lay(
        _: Pid,
        _: Registers,
        _: SignalMask,
        _: Option<&CriticalSection>,
    ) -> Option<Self> {
        None
    }

    pub(crate) fn gate(&self) -> Gate {
        match *self {}
    }

    pub(crate) fn returning(&self, _: Registers) -> Registers {
        match *self {}
    }

    pub(crate) fn of_child(&self) -> ChildFrame {
        match *self {}
    }

    pub(crate) fn clear(&self) -> io::Result<()> {
        match *self {}
    }
}
