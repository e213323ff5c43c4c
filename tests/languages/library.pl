# Uses modules of perl's own distribution, whose lines are stepped through as well.
use strict;
use warnings;
use Text::ParseWords;
use Text::Abbrev;

my @words = shellwords(q{one 'two three' four\ five});
my %short = abbrev(qw(list load quit));
my $text = join ' ', map { "$_=$short{$_}" } sort keys %short;
print "@words: $text\n";
