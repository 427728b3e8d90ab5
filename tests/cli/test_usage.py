"""Help, version, and command lines that are refused."""

from support import Case, INPUT, RUNTIME, USAGE, write_model

COMMANDS = ["info", "run", "verify", "bench", "explain"]


class Help(Case):
    def test_command(self):
        out, err = self.tileglu("--help")
        self.assertEqual(err, "")
        for word in COMMANDS + ["COMMAND", "Exit status: 0", "Examples:"]:
            self.assertIn(word, out)

    def test_subcommands(self):
        pieces = {
            "info": ["kernel rows"],
            "run": ["FILE|FOLDER", "--layer", "--tokens", "--input", "--dtype", "unfused",
                    "Examples:"],
            "verify": ["float64 oracle", "--quick", "--full", "2^-8 rms", "Examples:"],
            "bench": ["--model", "--rounds", "--csv", "last-level cache", "Examples:"],
            "explain": ["--misalign", "--pad", "Examples:"],
        }
        for command in COMMANDS:
            out, err = self.tileglu(command, "--help")
            self.assertEqual(err, "")
            flat = " ".join(out.split())
            for word in pieces[command] + [f"Usage: tileglu {command}", "Exit status: 0",
                                           "--backend", "--json", "--threads",
                                           "at most 1024"]:
                self.assertIn(word, flat, command)
            self.assertNotIn("inject", out)

    def test_what_bench_refuses_is_not_offered(self):
        for device, refused in (("cpu", {"--pad": ["1"], "--misalign": ["2"]}),
                                ("cuda", {"--pad": ["1"], "--misalign": ["2"], "--bias": [],
                                          "--residual": []})):
            out, _ = self.tileglu("bench", "--device", device, "--help")
            self.assertIn("--layout", out)
            for option, value in refused.items():
                self.assertNotIn(option + " ", out.replace("=", " "))
                self.refused(USAGE, [option, "for"], "bench", "--device", device, "--op", "mlp",
                             "--hidden", "8", "--intermediate", "8", option, *value)

    def test_version(self):
        out, _ = self.tileglu("--version")
        self.assertRegex(out, r"^tileglu \d+\.\d+\.\d+ \(commit \S+\)\n$")


class Usage(Case):
    def test_no_command(self):
        self.refused(USAGE, "COMMAND")

    def test_unknown_command(self):
        self.refused(USAGE, ['"rum"', "explain"], "rum")

    def test_unknown_option(self):
        for command in COMMANDS:
            self.refused(USAGE, ["--nonsense", f"tileglu {command}"], command, "--nonsense")

    def test_extra_argument(self):
        for command in ["info", "bench", "explain"]:
            self.refused(USAGE, '"extra"', command, "extra")
        for command in ["run", "verify"]:
            self.refused(USAGE, '"b"', command, "a", "b")

    def test_missing_shape_or_file(self):
        self.refused(USAGE, "FILE", "run")
        self.refused(USAGE, "--model", "verify")
        self.refused(USAGE, "--model", "bench")
        self.refused(USAGE, "--model", "explain")

    def test_numbers(self):
        shape = ["--hidden", "8", "--intermediate", "8"]
        cases = [
            (["verify", "--hidden", "0", "--intermediate", "8"], "--hidden"),
            (["verify", "--hidden", "8x", "--intermediate", "8"], "--hidden"),
            (["verify", "--hidden", "", "--intermediate", "8"], "--hidden"),
            (["verify", "--hidden", "8", "--intermediate", "-1"], "--intermediate"),
            (["verify", "--hidden", "8", "--intermediate", "99999999999999999999"],
             "--intermediate"),
            (["verify", *shape, "--tokens", "1,,2"], "--tokens"),
            (["verify", *shape, "--tokens", "-1"], "--tokens"),
            (["verify", *shape, "--threads", "-1"], "--threads"),
            (["verify", *shape, "--threads", "two"], "--threads"),
            (["verify", *shape, "--threads", "1025"], "--threads: \"1025\" is not a number"),
            (["verify", *shape, "--threads", "1025"], "from 0 to 1024"),
            (["verify", *shape, "--seed", "x"], "--seed"),
            (["verify", *shape, "--pad", "-1"], "--pad"),
            (["verify", *shape, "--misalign", "64"], "--misalign"),
            (["verify", *shape, "--limit", "nan"], "--limit"),
            (["verify", *shape, "--inject", "nan"], "--inject"),
            (["verify", *shape, "--inject", "nan@x"], "--inject"),
            (["bench", *shape, "--rounds", "0"], "--rounds"),
            (["bench", *shape, "--slice", "-1"], "--slice"),
            (["bench", *shape, "--tokens", "0"], "--tokens"),
            (["bench", *shape, "--cache-mib", "x"], "--cache-mib"),
            (["run", "f", "--tokens", "0"], "--tokens"),
            (["run", "f", "--repeat", "0"], "--repeat"),
        ]
        for arguments, option in cases:
            self.refused(USAGE, option, *arguments)

    def test_names(self):
        shape = ["--hidden", "8", "--intermediate", "8"]
        cases = [
            (["--backend", "gpu"], ["--backend", "gpu", "cuda"]),
            (["--dtype", "fp8"], ["--dtype", "bf16"]),
            (["--dtype", ""], ["--dtype", "bf16"]),
            (["--activation", "SiLU"], ["--activation", "gelu_tanh"]),
            (["--layout", "packed"], ["--layout", "interleaved"]),
            (["--op", "mlpp"], ["--op", "glu"]),
            (["--cpu-isa", "sse9"], ["cpu_isa", "portable"]),
            (["--row", "no_such_row"], ["row", "no_such_row"]),
        ]
        for arguments, words in cases:
            self.refused(USAGE, words, "verify", *shape, *arguments)
        self.refused(USAGE, ["--model", "GPT-9"], "verify", "--model", "GPT-9")

    def test_a_row_of_another_type(self):
        """As one that there is not: wrong use, said before anything is made."""
        row, huge = "glu_f32_portable_dot_1x2", ["--hidden", 2 ** 24, "--intermediate", 2 ** 24]
        model = write_model(self.folder / "model", layers=1)
        for dtype, asked in ((["--dtype", "f16"], "the type asked for is f16"),
                             (["--dtype", "bf16"], "the type asked for is bf16")):
            said = f'--row: "{row}" serves f32, and {asked} (--dtype)'
            for command in (["bench", *huge], ["verify", *huge], ["explain", *huge],
                            ["verify", *huge, "--tokens", "1,2"], ["run", model],
                            ["verify", model]):
                self.refused(USAGE, said, *command, "--row", row, *dtype)
        for command in ("bench", "verify", "explain"):
            self.refused(USAGE, "asked for is bf16", command, *huge, "--row", row)
        for command in ("bench", "explain"):
            self.refused(USAGE, "asked for is f16", command, *huge, "--row", row, "--dtype",
                         "f32,f16,bf16")
        self.refused(USAGE, f'"{row}" serves f32, and the type of layer 0 is bf16 (--dtype)', "run",
                     model, "--row", row)
        self.refused(USAGE, f'TILEGLU_ROW: "{row}" serves f32', "explain", *huge, TILEGLU_ROW=row)
        shape = ["--hidden", "8", "--intermediate", "8", "--row", row]
        d = self.json("verify", *shape, "--dtype", "bf16,f32,f16")
        self.assertEqual((d["passed"], d["refused"]), (1, 2))
        for command in ("verify", "explain"):
            self.json(command, *shape, "--dtype", "f32")
        self.json("run", model, "--row", row, "--dtype", "f32")

    def test_a_row_of_another_op(self):
        row, shape = "down_bf16_portable_dot_1x4", ["--hidden", "8", "--intermediate", "8"]
        for command in ("bench", "verify", "explain"):
            self.refused(USAGE, f'--row: "{row}" serves op down, and the op asked for is glu (--op)',
                         command, *shape, "--op", "glu", "--row", row)
        self.json("verify", *shape, "--op", "mlp", "--row", row)

    def test_an_item_twice_counts_once(self):
        """Where it first stands; and 64 are different ones."""
        plans = self.json("explain", "--model", "Qwen2.5-7B,smollm2-135m,QWEN2.5-7B", "--tokens",
                          "16,1,16,1,016", "--dtype", "f32,bf16,f32,f16,bf16")["plans"]
        self.assertEqual([(p["model"], p["case"].split()[2], p["case"].split()[7]) for p in plans],
                         [(model, tokens, dtype) for model in ("Qwen2.5-7B", "SmolLM2-135M")
                          for dtype in ("f32", "bf16", "f16") for tokens in ("16", "1")])
        shape = ["--hidden", "8", "--intermediate", "8"]
        self.assertEqual(len(self.json("verify", *shape, "--tokens", "3,3")["cases"]), 1)
        many = ",".join(str(m) for m in range(1, 65))
        plans = self.json("explain", *shape, "--tokens", many + ",64,1")["plans"]
        self.assertEqual(len(plans), 64)
        self.refused(USAGE, "--tokens: more than 64", "explain", *shape, "--tokens", many + ",65")

    def test_contradictions(self):
        shape = ["--hidden", "8", "--intermediate", "8"]
        self.refused(USAGE, "together", "verify", "--hidden", "8")
        self.refused(USAGE, "--model", "verify", "--model", "SmolLM2-135M", *shape)
        self.refused(USAGE, "one of them", "verify", "--quick", *shape)
        self.refused(USAGE, "one of them", "verify", "--quick", "file")
        self.refused(USAGE, "FILE", "verify", *shape, "--layer", "1")
        self.refused(USAGE, "--residual", "verify", *shape, "--op", "glu", "--residual")
        self.refused(USAGE, "alpha", "verify", *shape, "--alpha", "2")
        self.refused(USAGE, "standard output", "bench", *shape, "--json", "--csv", "-")

    def test_options_that_would_be_ignored(self):
        self.refused(USAGE, ["--dtype", "sweep"], "verify", "--quick", "--dtype", "f32")
        self.refused(USAGE, ["--bias", "FILE"], "verify", "file", "--bias")
        self.refused(USAGE, ["--activation", "FILE"], "verify", "file", "--activation", "relu")
        self.refused(USAGE, "one of each", "verify", "file", "--tokens", "1,2")
        self.refused(USAGE, "--pad", "bench", "--hidden", "8", "--intermediate", "8", "--pad",
                     "1")

    def test_environment(self):
        self.refused(USAGE, "TILEGLU_THREADS", "info", TILEGLU_THREADS="many")
        self.refused(USAGE, "TILEGLU_BACKEND", "info", TILEGLU_BACKEND="tpu")
        out, _ = self.tileglu("verify", "--hidden", "8", "--intermediate", "8", "--threads",
                              "1", TILEGLU_THREADS="3", TILEGLU_CPU_ISA="portable")
        self.assertIn("portable", out)

    def test_gpu_is_not_silently_replaced(self):
        self.refused(RUNTIME, "cuda", "verify", "--quick", "--backend", "cuda")
        self.refused(USAGE, "tpu", "bench", "--hidden", "8", "--intermediate", "8",
                     "--device", "tpu")

    def test_bench_of_a_missing_gpu(self):
        if self.json("info")["backends"][1]["usable"]:
            self.skipTest("there is a usable GPU")
        self.refused(RUNTIME, "cuda", "bench", "--hidden", "8", "--intermediate", "8",
                     "--device", "cuda", TILEGLU_BACKEND=None)

    def test_missing_file(self):
        for command in ["run", "verify"]:
            self.refused(INPUT, "no/such/file", command, "no/such/file")
