# The oracle for Perl: a DB::DB that writes each statement's file, line and subroutine to standard error.
# perl -d with PERL5DB='require "trace.pl"'
# Statements that perl leaves out when it isn't debugged are left out here too ($^P without 4).
package DB;
BEGIN { $^P &= ~4 }
my $own = __FILE__;
sub DB {
    my ($package, $file, $line) = caller;
    return if ${^GLOBAL_PHASE} ne q(RUN);
    my $sub = (caller 1)[3] // '';
    $sub =~ s/.*:://;
    $sub = 'main program' if $sub eq '' || $sub eq '(eval)' || $sub eq 'BEGIN';
    print STDERR join("\x1f", $file, $line, $sub), "\n";
}
sub sub { no strict 'refs'; &$sub }
1;
