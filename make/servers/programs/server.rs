//! A server of a few keys on tokio: `GET /KEY` counts its requests; `GET /quit` ends it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

type Counts = Arc<Mutex<HashMap<String, u64>>>;

async fn serve(mut stream: TcpStream, counts: Counts, quit: Arc<Notify>) -> std::io::Result<()> {
    let (input, mut output) = stream.split();
    let mut lines = BufReader::new(input).lines();
    let mut path = String::new();
    while let Some(line) = lines.next_line().await? {
        if let Some(request) = line.strip_prefix("GET ") {
            path = request.split(' ').next().unwrap_or_default().to_owned();
        }
        if !line.is_empty() {
            continue;
        }
        *counts.lock().unwrap().entry(path.clone()).or_default() += 1;
        output.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nserved").await?;
        if path == "/quit" {
            quit.notify_one();
        }
    }
    Ok(())
}

#[tokio::main(worker_threads = 4)]
async fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).unwrap_or_default();
    let listener = TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    let (counts, quit) = (Counts::default(), Arc::new(Notify::new()));
    loop {
        tokio::select! {
            connection = listener.accept() => {
                tokio::spawn(serve(connection?.0, counts.clone(), quit.clone()));
            }
            () = quit.notified() => return Ok(()),
        }
    }
}
