# SBCL: memory at addresses of its own choice, code made and moved at run time, a collector that writes to protected
# pages, threads, conditions, a core that is saved and started.
# needs: sbcl
# run: long
# timeout: 180
# ignore: again.core
cat >work.lisp <<'X'
(defun fib (n) (if (< n 2) n (+ (fib (- n 1)) (fib (- n 2)))))
(format t "~a~%" (fib 20))
(let ((table (make-hash-table)))
  (dotimes (i 20000) (setf (gethash i table) (list i (* i i))))
  (gc :full t)
  (format t "~a~%" (hash-table-count table)))
(let ((threads (loop for k below 3
                     collect (let ((k k)) (sb-thread:make-thread (lambda () (loop for i below 5000 sum (* i k))))))))
  (format t "~a~%" (mapcar #'sb-thread:join-thread threads)))
(handler-case (error "planned") (error (e) (format t "~a~%" e)))
(handler-case (car (the list (eval 5))) (type-error () (format t "a type error~%")))
(compile 'fib)
(format t "~a ~a~%" (fib 18) (expt 3 200))
X
sbcl --script work.lisp
sbcl --noinform --no-userinit --eval '(progn (defun main () (format t "saved ~a~%" (+ 40 2))) (save-lisp-and-die "again.core" :toplevel (lambda () (main) (sb-ext:exit :code 7))))' >/dev/null 2>&1
sbcl --noinform --core again.core || echo "status $?"
