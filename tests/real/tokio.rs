//! A tokio program: tasks, channels, timers, TCP, a child process, a signal, blocking work.

use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{SignalKind, signal};
use tokio::{process::Command, sync::mpsc, task, time};

#[tokio::main(flavor = "multi_thread", worker_threads = 4)]
async fn main() {
    let (send, mut receive) = mpsc::channel(16);
    for n in 0..200u64 {
        let send = send.clone();
        task::spawn(async move {
            task::yield_now().await;
            send.send(n * n).await.expect("the receiver is there");
        });
    }
    drop(send);
    let mut sum = 0;
    while let Some(n) = receive.recv().await {
        sum += n;
    }
    println!("tasks {sum}");

    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    task::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("a client");
            task::spawn(echo(stream));
        }
    });
    let clients = (0..20).map(|n| task::spawn(client(address, n)));
    let mut total = 0;
    for client in clients {
        total += client.await.expect("a client that ends");
    }
    println!("echoed {total}");

    let timed = time::timeout(Duration::from_millis(5), std::future::pending::<()>()).await;
    println!("timeout {}", timed.is_err());
    let output = Command::new("echo")
        .arg("child")
        .output()
        .await
        .expect("echo");
    print!("{}", String::from_utf8_lossy(&output.stdout));
    let mut hangup = signal(SignalKind::hangup()).expect("a handler");
    let pid = std::process::id().to_string();
    Command::new("kill")
        .args(["-HUP", &pid])
        .status()
        .await
        .expect("kill");
    hangup.recv().await;
    println!("signal");
    let hashed = task::spawn_blocking(|| (0..1_000_000u64).fold(1, |h, n| h * 31 % 1_000_003 + n));
    println!("blocking {}", hashed.await.expect("a result"));
    std::process::exit(0);
}

async fn echo(stream: TcpStream) {
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let line = line.to_uppercase() + "\n";
        writer
            .write_all(line.as_bytes())
            .await
            .expect("a writable socket");
    }
}

async fn client(address: std::net::SocketAddr, n: usize) -> usize {
    let stream = TcpStream::connect(address).await.expect("a server");
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    let mut echoed = 0;
    for i in 0..20 {
        let line = format!("client {n} line {i}\n");
        writer
            .write_all(line.as_bytes())
            .await
            .expect("a writable socket");
        let answer = lines.next_line().await.expect("an answer").expect("a line");
        echoed += usize::from(answer == line.trim_end().to_uppercase());
    }
    echoed
}
