//! The processes of an MPI program of ours, and how each reaches the others.
//!
//! The processes are a small C program (`shims/mpi/merge_node.c`), which starts `numaloc` and carries its messages. So
//! `numaloc` needs no MPI library.

#[cfg(test)]
pub(crate) mod threads;

use std::io::{Read, Write};

use crate::shims::MpiLibrary;

const OPEN_MPI: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/numaloc-merge-openmpi"));
const MPICH: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/numaloc-merge-mpich"));

/// The C program for a library.
pub(crate) fn node_program(library: MpiLibrary) -> &'static [u8] {
    match library {
        MpiLibrary::OpenMpi => OPEN_MPI,
        MpiLibrary::Mpich => MPICH,
    }
}

/// The processes of the program.
pub trait Peers {
    /// This process, from 0.
    fn rank(&self) -> u32;
    /// Number of processes.
    fn size(&self) -> u32;
    /// Sends bytes to another process.
    ///
    /// # Errors
    /// If the connection is lost.
    fn send(&mut self, to: u32, bytes: &[u8]) -> std::io::Result<()>;
    /// The next bytes from another process.
    ///
    /// # Errors
    /// If the connection is lost.
    fn receive(&mut self, from: u32) -> std::io::Result<Vec<u8>>;
}

const SEND: u32 = 1;
const RECEIVE: u32 = 2;
const FINISH: u32 = 3;

/// The connection to the process that carries messages; its protocol is in `merge_node.c`.
pub(crate) struct Node<R, W> {
    input: R,
    output: W,
    rank: u32,
    size: u32,
}

impl<R: Read, W: Write> Node<R, W> {
    pub fn connect(mut input: R, output: W) -> std::io::Result<Self> {
        let mut place = [0; 8];
        input.read_exact(&mut place)?;
        let [rank, size] = [&place[..4], &place[4..]]
            .map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")));
        Ok(Self {
            input,
            output,
            rank,
            size,
        })
    }

    /// Reports that this process has done its part. Without it, the whole program fails.
    pub fn finish(&mut self) -> std::io::Result<()> {
        self.request(FINISH, 0, 0)
    }

    fn request(&mut self, request: u32, peer: u32, length: u64) -> std::io::Result<()> {
        let mut frame = [0; 16];
        frame[..4].copy_from_slice(&request.to_le_bytes());
        frame[4..8].copy_from_slice(&peer.to_le_bytes());
        frame[8..].copy_from_slice(&length.to_le_bytes());
        self.output.write_all(&frame)?;
        self.output.flush()
    }
}

impl<R: Read, W: Write> Peers for Node<R, W> {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn send(&mut self, to: u32, bytes: &[u8]) -> std::io::Result<()> {
        self.request(SEND, to, bytes.len() as u64)?;
        self.output.write_all(bytes)?;
        self.output.flush()
    }

    fn receive(&mut self, from: u32) -> std::io::Result<Vec<u8>> {
        self.request(RECEIVE, from, 0)?;
        let mut length = [0; 8];
        self.input.read_exact(&mut length)?;
        let mut bytes = Vec::new();
        let length = u64::from_le_bytes(length);
        let read = self.input.by_ref().take(length).read_to_end(&mut bytes)?;
        if read as u64 == length {
            Ok(bytes)
        } else {
            Err(std::io::ErrorKind::UnexpectedEof.into())
        }
    }
}
