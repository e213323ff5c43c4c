do {
    no strict; no warnings; local $@; local $_;
    local $clew::show; local $clew::depth = 0;
    $clew::show = sub {
        my ($v, $d) = @_;
        return 'undef' unless defined $v;
        unless (ref $v) {
            return $v if $v =~ /^-?(?:0|[1-9]\d{0,15})(?:\.\d+)?(?:e[-+]?\d+)?$/;
            my $t = $v; $t =~ s/([\\'])/\\$1/g; return "'$t'";
        }
        my $class = ref $v;
        my $bless = $class =~ /^(?:ARRAY|HASH|SCALAR|REF|CODE|Regexp|GLOB)$/ ? '' : "$class ";
        return "$bless..." if $d > 5;
        return "qr/$v/" if $class eq 'Regexp';
        return $bless . '[' . join(', ', map { $clew::show->($_, $d + 1) } @$v) . ']' if UNIVERSAL::isa($v, 'ARRAY');
        return $bless . '{' . join(', ', map { "$_ => " . $clew::show->($v->{$_}, $d + 1) } sort keys %$v) . '}'
            if UNIVERSAL::isa($v, 'HASH');
        return "$bless\\" . $clew::show->($$v, $d + 1) if UNIVERSAL::isa($v, 'SCALAR') || UNIVERSAL::isa($v, 'REF');
        return "${bless}sub" if UNIVERSAL::isa($v, 'CODE');
        return "$class";
    };
    my @clew_told;
    for my $clew_text (@clew::texts) {
        my @clew_found = $clew::scalar ? scalar(eval $clew_text) : eval $clew_text;
        my $clew_why = $@; $clew_why =~ s/ at \(eval.*//s;
        my $clew_shown = @clew_found == 1 ? $clew::show->($clew_found[0], 0)
            : '(' . join(', ', map { $clew::show->($_, 0) } @clew_found) . ')';
        my $clew_true = @clew_found == 1 ? $clew_found[0] : @clew_found;
        push @clew_told, join("\x1f", $clew_text, $@ ne '' ? ('undefined', $clew_why, '')
            : ('value', $clew_shown, $clew_true ? 'true' : 'false'));
    }
    $| = 1;
    print STDOUT '';
    join("\x1e", @clew_told)
}
