// A server of a few keys: GET /KEY counts its requests; GET /quit ends it.
import com.sun.net.httpserver.HttpServer;
import java.net.InetSocketAddress;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executors;

public class Server {
    public static void main(String[] arguments) throws Exception {
        var counts = new ConcurrentHashMap<String, Integer>();
        var address = new InetSocketAddress("127.0.0.1", Integer.parseInt(arguments[0]));
        var server = HttpServer.create(address, 0);
        var workers = Executors.newFixedThreadPool(4);
        server.setExecutor(workers);
        server.createContext("/", exchange -> {
            String path = exchange.getRequestURI().getPath();
            counts.merge(path, 1, Integer::sum);
            byte[] answer = "served".getBytes();
            exchange.sendResponseHeaders(200, answer.length);
            exchange.getResponseBody().write(answer);
            exchange.close();
            if (path.equals("/quit")) new Thread(() -> {
                server.stop(1);
                workers.shutdown();
            }).start();
        });
        server.start();
    }
}
