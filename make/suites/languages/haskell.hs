-- Lightweight threads on several of the system, exceptions, collection of garbage.
import Control.Concurrent
import Control.Exception

main :: IO ()
main = do
  box <- newEmptyMVar
  mapM_ (\n -> forkIO (putMVar box $! sum [1 .. 10000 * n])) [1 .. 8 :: Int]
  sums <- mapM (const (takeMVar box)) [1 .. 8 :: Int]
  print (sum sums)
  divided <- try (evaluate (1 `div` (0 :: Int))) :: IO (Either ArithException Int)
  print divided
