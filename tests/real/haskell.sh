# A program made by ghc: its runtime's own threads, timer signal, heap at a fixed place, and the compiler itself.
# needs: ghc
# run: long
# timeout: 300
cat >Main.hs <<'X'
import Control.Concurrent
import Control.Exception
import qualified Data.Map.Strict as M
main :: IO ()
main = do
  let m = M.fromList [(i, i * i) | i <- [1 .. 20000 :: Int]]
  done <- newEmptyMVar
  mapM_ (\k -> forkIO (putMVar done $! sum (M.elems m) + k)) [1 .. 4]
  xs <- mapM (const (takeMVar done)) [1 .. 4 :: Int]
  print (sum xs)
  r <- try (evaluate (1 `div` (M.size m - 20000))) :: IO (Either ArithException Int)
  print r
X
ghc -v0 -O -threaded -rtsopts Main.hs -o work
./work
./work +RTS -N2 -A64k
./work +RTS -V0.001
rm -f work Main.hi Main.o
