# A wrong intermediate result: one number is added twice.
use strict;
use warnings;

my %totals = (odd => 0, even => 0);
my @seen;

sub add {
    my ($kind, $n) = @_;
    $totals{$kind} += $n;
    push @seen, $n;
    if ($n == 36) {
        my $again = $n;
        $totals{$kind} += $again;
    }
    return $totals{$kind};
}

sub squares {
    my ($limit) = @_;
    my @all;
    for my $i (1 .. $limit) {
        push @all, $i * $i;
    }
    return @all;
}

for my $n (squares(10)) {
    my $kind = $n % 2 ? 'odd' : 'even';
    add($kind, $n);
}
my $sum = 0;
$sum += $_ for @seen;
my $wrong = $totals{odd} + $totals{even} != $sum;
print "$totals{odd} $totals{even} $sum $wrong\n";
