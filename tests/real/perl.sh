# Perl: hashes, regular expressions, closures, sorting, formats, fork, pipes, sprintf.
# needs: perl
cat >script.pl <<'X'
use strict; use warnings; my %h; $h{$_ % 97} += $_ for 1 .. 30000;
print join(",", map { "$_=$h{$_}" } (sort { $h{$b} <=> $h{$a} || $a <=> $b } keys %h)[0 .. 4]), "\n";
my $text = "The year 1999 and 2024, not 12345"; print join("|", $text =~ /\b(\d{4})\b/g), "\n"; (my $t = $text) =~ s/(\w+)/\u\L$1/g; print "$t\n";
my @stack = map { my $n = $_; sub { $n++ } } 1 .. 3; print $_->(), $_->(), " " for @stack; print "\n";
printf "%.10f %s %05d %e\n", atan2(1, 1) * 4, "x" x 5, 42, 12345.678;
my $pid = open(my $pipe, "-|") // die; if (!$pid) { print "from the child\n"; exit 4 } print <$pipe>; close $pipe; print $? >> 8, "\n";
print `echo backticks`; system("exit 3"); print $? >> 8, "\n"; local $SIG{ALRM} = sub { die "alarm\n" }; eval { alarm 1; 1 while 1; }; print $@;
my $s = join "", map { chr(97 + $_ % 26) } 0 .. 9999; my $c = () = $s =~ /xyz/g; print "$c ", unpack("%32C*", $s), "\n";
eval { die { code => 7 } }; print $@->{code}, "\n"; print scalar reverse("abc"), " ", lc("ABC"), " ", sprintf("%b", 10), "\n"; print sort { $a <=> $b } (10, 9, 8); print "\n"; local $, = "-"; print 1, 2, 3; print "\n"; exit 6;
X
perl script.pl || echo "status $?"
