//! Threads of a test in place of processes.

use std::sync::mpsc::{Receiver, Sender, channel};

use super::Peers;

pub(crate) struct Threads {
    pub rank: u32,
    pub to: Vec<Sender<Vec<u8>>>,
    pub from: Vec<Receiver<Vec<u8>>>,
}

impl Peers for Threads {
    fn rank(&self) -> u32 {
        self.rank
    }
    fn size(&self) -> u32 {
        self.to.len() as u32
    }
    fn send(&mut self, to: u32, bytes: &[u8]) -> std::io::Result<()> {
        let sent = self.to[to as usize].send(bytes.to_vec());
        sent.map_err(std::io::Error::other)
    }
    fn receive(&mut self, from: u32) -> std::io::Result<Vec<u8>> {
        let received = self.from[from as usize].recv();
        received.map_err(std::io::Error::other)
    }
}

/// Threads that reach each other.
pub(crate) fn threads(size: usize) -> Vec<Threads> {
    let mut peers: Vec<Threads> = (0..size as u32)
        .map(|rank| Threads {
            rank,
            to: Vec::new(),
            from: Vec::new(),
        })
        .collect();
    for from in 0..size {
        for to in 0..size {
            let (sender, receiver) = channel();
            peers[from].to.push(sender);
            peers[to].from.push(receiver);
        }
    }
    peers
}
