"""Files that are no videos, or that would cost too much: each is told in words, within the sandbox's limits."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator

import pytest

from tests.video.conftest import Videos
from tvsnap import Cache, Limits, Rollout, ToolResult
from tvsnap.plugins.video import VideoEnvironment

FFMPEG = "ffmpeg -v error -y "


@pytest.fixture
def rollout(videos: Videos) -> Iterator[Rollout]:
    with Cache(videos.home, environments=[VideoEnvironment()]) as cache, cache.rollout(videos.image) as rollout:
        yield rollout


def load(rollout: Rollout, name: str) -> ToolResult:
    return rollout.call("load_video_into_sandbox", {"video_name": name}, timeout=120)


def kept(rollout: Rollout) -> int:
    """Returns how many frames are kept of the video."""
    return int(rollout.call("exec", {"command": "ls /var/lib/tvsnap-video/frames | wc -l"}).output)


def bomb(width: int, height: int) -> bytes:
    """Returns a PNG file of a few kilobytes whose picture takes gigabytes."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    packer = zlib.compressobj(9)
    rows = b"".join(packer.compress(bytes(1 + width * 3)) for _ in range(100)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("made", "name", "reason"),
    [
        ("true", "none.mp4", "/videos/none.mp4: No such file or directory"),
        ("true", "/etc", "/etc is no file"),
        ("true", "", "/videos is no file"),
        ("mkfifo pipe.mp4", "pipe.mp4", "is no file"),
        (": > empty.mp4", "empty.mp4", "is empty"),
        ("echo hello > text.mp4", "text.mp4", "is not a video that FFmpeg can read"),
        ("head -c 300000 /dev/zero > zeros.mp4", "zeros.mp4", "is not a video that FFmpeg can read"),
        ("head -c 3000 $SAMPLE > cut.mp4", "cut.mp4", "is not a video that FFmpeg can read"),
        (FFMPEG + "-f lavfi -i sine=d=2 sound.mp3", "sound.mp3", "FFmpeg finds the format mp3, not 3gp, "),
        (FFMPEG + "-f lavfi -i sine=d=2 sound.m4a", "sound.m4a", "has no pictures"),
        ("seq 1000 > a.txt", "a.txt", "FFmpeg finds the format tty, not 3gp, "),
        ("seq 1000 > a.xbin", "a.xbin", "is not a video"),
        ("head -c 100000 /dev/zero > a.yuv", "a.yuv", "is not a video"),
        (FFMPEG + "-f lavfi -i color=d=1:r=5 %d.png; cp 1.png 'a%d.png'", "%d.png", "No such file"),
        (FFMPEG + "-f lavfi -i color=d=1:r=5 %d.png; cp 1.png 'a%d.png'", "a%d.png", "is a single picture"),
        (FFMPEG + "-f lavfi -i color=d=4:r=5 -f hls list.mp4", "list.mp4", "FFmpeg finds the format hls"),
        (FFMPEG + "-f lavfi -i color=d=4:r=5 -f dash dash.mpd", "dash.mpd", "FFmpeg finds the format dash"),
        (
            "printf \"ffconcat version 1.0\\nfile '$SAMPLE'\\n\" > l.mp4",
            "l.mp4",
            "FFmpeg finds the format concat",
        ),
        (FFMPEG + "-f lavfi -i color=d=1 -frames:v 1 one.png", "one.png", "is a single picture"),
        (FFMPEG + "-f lavfi -i color=s=16x16:r=1:d=20000 -preset ultrafast long.mp4", "long.mp4", "is 20000 s long"),
        ("printf '#EXTM3U\\n#EXTINF:5,\\nhttp://127.0.0.1:1/a.ts\\n' > list.m3u8", "list.m3u8", "is not a video"),
        ("printf \"ffconcat version 1.0\\nfile '/etc/passwd'\\n\" > l.ffconcat", "l.ffconcat", "is not a video"),
        ("true", "http://127.0.0.1:9/x.mp4", "cannot be fetched"),
        ("true", "https://", "cannot be fetched"),
        ("true", "http://[", "cannot be fetched: Invalid"),
        ("true", "http://x:port/a.mp4", "cannot be fetched: nonnumeric port"),
        ("true", "https://user:pw@x/a.mp4", "with a user or a password is not fetched"),
        ("true", "HTTP://:pw@[", "with a user or a password is not fetched"),
        ("true", "https:user:pw@x/a.mp4", "with a user or a password is not fetched"),
        ("touch -- '-y.mp4'; echo text > ./-y.mp4", "-y.mp4", "is not a video"),
    ],
)
def test_what_is_no_video_is_told(rollout: Rollout, videos: Videos, made: str, name: str, reason: str) -> None:
    command = made.replace("$SAMPLE", videos.questions[0].video_name)
    assert rollout.call("exec", {"command": command}, timeout=120).exit_code == 0
    said = load(rollout, name)
    assert said.exit_code == 1
    assert reason in said.output
    assert "pw" not in said.output
    assert "0x" not in said.output  # an address of FFmpeg's memory would differ each time
    assert rollout.call("preprocess", {}).output == "no video is loaded: call load_video_into_sandbox first\n"


def test_a_picture_that_unpacks_to_gigabytes_is_refused(rollout: Rollout) -> None:
    rollout.put(bomb(40_000, 40_000), "/videos/bomb.png")
    assert load(rollout, "bomb.png").exit_code == 1
    large = FFMPEG + "-f lavfi -i color=s=8192x8192:r=25 -frames:v 1 -c:v png large.mkv"
    assert rollout.call("exec", {"command": large}, timeout=120).exit_code == 0
    said = load(rollout, "large.mkv")
    assert (said.exit_code, said.output) == (
        1,
        "/videos/large.mkv has frames of 8192 x 8192 pixels; at most 35389440 are decoded\n",
    )


def test_usual_formats_are_taken(rollout: Rollout) -> None:
    names = ["mp4", "mov", "m4v", "mkv", "webm", "avi", "ts", "mpg", "flv", "wmv", "ogv", "mxf", "nut", "gif"]
    made = "; ".join(f"{FFMPEG}-f lavfi -i testsrc=s=160x96:r=25:d=2 a.{name}" for name in names)
    rollout.call("exec", {"command": made}, timeout=120)
    for name in names:
        assert "x 96 pixels, 1 segment" in load(rollout, f"a.{name}").output, name


def test_a_turned_video_has_the_size_that_is_shown(rollout: Rollout) -> None:
    asked = "python3 -c \"from PIL import Image; print(*Image.open('/var/lib/tvsnap-video/frames/000000.jpg').size)\""
    source = f"{FFMPEG}-f lavfi -i testsrc=s=160x90:r=25:d=2 plain.mp4"
    assert rollout.call("exec", {"command": source}, timeout=120).exit_code == 0
    for degrees, shown in ((90, "90 x 160"), (180, "160 x 90"), (270, "90 x 160")):
        turned = f"{FFMPEG}-i plain.mp4 -c copy -metadata:s:v:0 rotate={degrees} turned.mp4"
        assert rollout.call("exec", {"command": turned}).exit_code == 0
        assert f"{shown} pixels" in load(rollout, "turned.mp4").output
        assert rollout.call("preprocess", {}, timeout=600).exit_code == 0
        assert rollout.call("exec", {"command": asked}).output.strip().replace(" ", " x ") == shown


def test_frames_that_cannot_be_decoded_are_told(rollout: Rollout, videos: Videos) -> None:
    name = videos.questions[0].video_name
    spoil = f"""python3 - <<'EOF'
data = bytearray(open({name!r}, 'rb').read())
start = data.index(b'mdat') + 4
data[start:] = bytes(len(data) - start) if data.index(b'moov') < start else data[start:]
open('spoilt.mp4', 'wb').write(data)
EOF"""
    assert rollout.call("exec", {"command": spoil}).exit_code == 0
    assert load(rollout, "spoilt.mp4").exit_code == 0
    said = rollout.call("preprocess", {}, timeout=600)
    assert said.exit_code == 1
    assert "no frame of /videos/spoilt.mp4 can be decoded" in said.output


def test_a_file_that_says_that_it_is_longer_than_its_pictures_can_be_preprocessed_again(rollout: Rollout) -> None:
    sources = "-f lavfi -i color=s=160x90:d=3 -f lavfi -i sine=d=8"
    assert rollout.call("exec", {"command": f"{FFMPEG}{sources} long.mkv"}, timeout=120).exit_code == 0
    assert "4 segments" in load(rollout, "long.mkv").output
    for _ in range(2):
        said = rollout.call("preprocess", {}, timeout=600)
        assert (said.exit_code, said.output) == (0, "Preprocessing completed: 2 segments, 0 objects\n")


def test_each_segment_has_a_frame(rollout: Rollout) -> None:
    for seconds, name in (
        (0.04, "a.mp4"),
        (0.04, "a.mkv"),
        (0.5, "a.mp4"),
        (2.08, "a.mp4"),
        (2.12, "a.mp4"),
        (2.24, "a.mkv"),
    ):
        source = f"{FFMPEG}-f lavfi -i testsrc=s=160x90:r=25:d={seconds} {name}"
        assert rollout.call("exec", {"command": source}, timeout=120).exit_code == 0
        total = 2 if seconds > 2.1 else 1
        assert f", {total} segment" in load(rollout, name).output
        assert rollout.call("preprocess", {}, timeout=600).output.startswith(
            f"Preprocessing completed: {total} segment"
        )
        assert -(-kept(rollout) // 4) == total


def test_no_segment_is_listed_beyond_the_last_picture(rollout: Rollout) -> None:
    for pictures, total in ((0.04, 1), (1, 1), (2.5, 2), (3, 2)):
        sources = f"-f lavfi -i testsrc=s=160x90:r=25:d={pictures} -f lavfi -i sine=d=11"
        assert rollout.call("exec", {"command": f"{FFMPEG}{sources} long.mkv"}, timeout=120).exit_code == 0
        assert "6 segments" in load(rollout, "long.mkv").output
        assert rollout.call("preprocess", {}, timeout=600).exit_code == 0
        assert -(-kept(rollout) // 4) == total
        told = rollout.call("caption_retrieval", {"start_segment_ID": 0, "end_segment_ID": 9}).output
        assert told.startswith(f"There are {total} segments in total")
        assert f"{total - 1}: " in told
        assert f"{total}: " not in told


def test_a_file_that_was_replaced_after_it_was_loaded_is_told(rollout: Rollout, videos: Videos) -> None:
    first, second = (question.video_name for question in videos.questions)
    load(rollout, first)
    shorter = f"{FFMPEG}-t 2 -i {second} -c copy short.mp4 && mv short.mp4 {first}"
    assert rollout.call("exec", {"command": shorter}, timeout=120).exit_code == 0
    said = rollout.call("preprocess", {}, timeout=600)
    assert said.exit_code == 1
    assert "is another video than the one that was loaded" in said.output


def test_a_failed_download_leaves_a_file_of_its_name_as_it_was(rollout: Rollout, videos: Videos) -> None:
    name = videos.questions[0].video_name
    listed = rollout.call("exec", {"command": "ls -lA; cat *.mp4 | sha256sum"}).output
    assert load(rollout, f"http://127.0.0.1:9/{name}").exit_code == 1
    assert rollout.call("exec", {"command": "ls -lA; cat *.mp4 | sha256sum"}).output == listed


def test_a_video_is_fetched_from_an_address(rollout: Rollout, videos: Videos) -> None:
    name = videos.questions[0].video_name
    served = f"mkdir /srv/v; cp {name} /srv/v/a%b.mp4; cd /srv/v; python3 -m http.server 8123 > /dev/null 2>&1 &"
    rollout.call("bash", {"command": served})
    rollout.call("bash", {"command": "until (echo > /dev/tcp/127.0.0.1/8123) 2> /dev/null; do sleep 0.1; done"})
    said = load(rollout, "http://127.0.0.1:8123/a%25b.mp4")
    assert said.exit_code == 0, said.output
    assert rollout.call("exec", {"command": f"cmp {name} a%b.mp4"}).exit_code == 0


def test_a_disk_that_is_full_is_told(videos: Videos) -> None:
    limits = Limits(disk=256 << 10)
    with (
        Cache(videos.home, environments=[VideoEnvironment()]) as cache,
        cache.rollout(videos.image, limits=limits) as rollout,
    ):
        load(rollout, videos.questions[0].video_name)
        said = rollout.call("preprocess", {}, timeout=600)
        assert said.exit_code == 1
        assert "no" in said.output.lower()
        assert rollout.call("exec", {"command": "echo alive"}).output == "alive\n"
