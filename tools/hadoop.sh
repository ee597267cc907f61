#!/bin/sh
# A name node and a data node for the tests, in build/hadoop: the jars of an old Hadoop, which PySpark 2.4 has in it.
set -eu
cd "$(dirname "$0")/.."
[ -e build/hadoop/.done ] && exit 0
rm -rf build/hadoop
mkdir -p build/hadoop/jars
"${PYTHON:-python3}" -m venv build/hadoop/venv
build/hadoop/venv/bin/python -m pip install --quiet 'setuptools<70' wheel
build/hadoop/venv/bin/python -m pip download --quiet --no-deps --no-binary :all: --no-build-isolation \
    --dest build/hadoop pyspark==2.4.8
tar xzf build/hadoop/pyspark-2.4.8.tar.gz --strip-components=3 -C build/hadoop/jars --wildcards '*/deps/jars/*.jar'
rm -rf build/hadoop/venv build/hadoop/pyspark-2.4.8.tar.gz
for page in hdfs datanode static; do   # their web servers do not start without
    mkdir -p build/hadoop/webapps/$page/WEB-INF
    echo '<web-app></web-app>' >build/hadoop/webapps/$page/WEB-INF/web.xml
done
touch build/hadoop/.done
